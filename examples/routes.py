"""One forwarding table for several router controllers: each of them learns routes, all of them
forward alike, and any of them may die.

    samcast up --detach
    python examples/routes.py learn 10.0.0.0/8 eth0
    python examples/routes.py learn 10.1.0.0/16 eth1
    python examples/routes.py lookup 10.1.2.3        # eth1: the longest prefix that matches
    python examples/routes.py follow                 # in another terminal: changes as they come
"""

import ipaddress
import sys

import samcast
from samcast import ReplicatedTable


def key_of(prefix: str) -> str:
    """Of a network, the same however it was written."""
    return str(ipaddress.ip_network(prefix))


def lookup(routes: ReplicatedTable, address: str) -> tuple[str, str] | None:
    """The longest prefix that matches, and where it leads: at most 33 local reads."""
    host = ipaddress.ip_address(address)
    for bits in range(host.max_prefixlen, -1, -1):
        network = ipaddress.ip_network((host, bits), strict=False)
        found = routes.get(str(network))
        if found is not None:
            return str(network), found.decode()
    return None


def main() -> None:
    try:
        run()
    except (ValueError, samcast.SamcastError) as error:
        sys.exit(f"routes: {error}")


def run() -> None:
    with samcast.connect() as client:
        routes = client.table("routes")
        match sys.argv[1:]:
            case ["learn", prefix, port]:
                print("in effect from number", routes.put(key_of(prefix), port).number())
            case ["forget", prefix]:
                print("gone from number", routes.delete(key_of(prefix)).number())
            case ["lookup", address]:
                routes.sync()
                print(lookup(routes, address) or "no route")
            case ["follow"]:
                with routes.watch() as watch:
                    for change in watch:
                        print(change.number, change.key.decode(), (change.value or b"-").decode())
            case _:
                print(__doc__)


if __name__ == "__main__":
    main()
