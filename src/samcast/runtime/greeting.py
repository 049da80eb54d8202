"""Whether whoever says hello may come in: the same protocol, the same cluster, and for a node the
same cluster file and a place in the cluster. What can't be is refused with what to do about it.
"""

from samcast.limits import NODE_MAX
from samcast.machine.ports import NodeId
from samcast.runtime.cluster_file import ClusterPlan
from samcast.runtime.directory import Directory
from samcast.wire.errors import WireError
from samcast.wire.session import PROTOCOL, REMOVED, Hello


def check_hello(plan: ClusterPlan, hello: Hello) -> None:
    """Of anybody, a client or a node."""
    if hello.protocol != PROTOCOL:
        raise WireError(
            "session-protocol",
            f"you speak protocol {hello.protocol}, this node {PROTOCOL}; upgrade the older one",
        )
    if hello.cluster and hello.cluster != plan.cluster:
        raise WireError(
            "session-cluster",
            f"this is cluster {plan.cluster!r}, not {hello.cluster!r}; correct the address",
        )
    if hello.node > NODE_MAX:
        raise WireError("session-node", f"{hello.node} is no node's id")


def check_file(plan: ClusterPlan, hello: Hello) -> None:
    """Of a node: it must have begun with what we began with."""
    if hello.digest != plan.digest():
        mine, theirs = dict(plan.facts()), dict(hello.settings)
        keys = sorted({k for k in {*mine, *theirs} if mine.get(k) != theirs.get(k)})
        raise WireError(
            "session-config",
            f"our cluster files differ in {', '.join(keys)}; give all nodes the same file",
        )


def check_listed(directory: Directory, own: NodeId, node: NodeId) -> None:
    """Of the cluster are those whom the order lists; whoever isn't itself of it yet believes all
    who know how it began."""
    number = directory.configuration.number
    if node == own:
        raise WireError("session-node", f"node {node} is this one; ids are used once")
    if not directory.lists(own):
        return
    if directory.is_removed(node):
        raise WireError(
            REMOVED,
            f"node {node} is not of this cluster any more, by configuration {number}; its"
            " folder may go, and `samcast node prepare` makes a new one",
        )
    if not directory.lists(node):
        raise WireError(
            "session-unlisted",
            f"node {node} is not of this cluster yet; `samcast node add` lets it in",
        )
