"""Every bound of the system: one constant, one reason.

A bound that a test wants to reach sooner is a field of a config with its default here.
"""

# wire
FRAME_BYTES_MAX = 64 * 1024 * 1024  # the largest thing a peer may make us hold while we read it
FRAME_BYTES_UNTRUSTED_MAX = 16 * 1024  # before a peer has said who it is
BATCH_MESSAGES_MAX = 1_000_000  # offsets are int32 and a batch is one unit of repair
BATCH_COLUMNS_BYTES_MAX = 32 * 1024 * 1024  # fits a frame with room for its header

# journals
SECTOR_BYTES = 512  # what a disk writes whole or not at all
JOURNAL_GROUP_BYTES_MAX = 4 * 1024 * 1024  # one group write; a segment holds at least one
ORDER_PIECE_BYTES_MAX = 1024 * 1024  # entries of a record or message, or one: fits group and frame
DECISION_BYTES = 64  # of an entry, beside its stages: owner, incarnation, tx
DECISION_STAGE_BYTES = 72  # of one of its stages, each in a group of its own
JOURNAL_SEGMENT_BYTES_MAX = 1024 * 1024 * 1024  # a scan holds a segment in memory, whole
JOURNAL_TAIL_DOUBT_SECTORS = 8  # a device spoils a 4 KiB page as one, so a flaw so near counts
TWIN_RECORD_BYTES_MAX = 480  # fits a sector beside its header, with room for fields to come
NODE_MAX = 2**16 - 1  # ids of nodes; those of clients are above
SERVERS_MAX = 28  # of a configuration, which is part of a vote and so of a twin record
SEGMENT_ALIGN_BYTES = 64  # where data records begin; a scan looks for the next one at these places
SEGMENT_BODY_BYTES_MAX = 256 * 1024 * 1024  # one body can't outgrow the largest data segment
CORE_STATE_BYTES_MAX = SEGMENT_BODY_BYTES_MAX  # a core snapshot is one such body
