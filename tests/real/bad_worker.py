"""Stands in for the process that folds, and says on its standard output what it is told to:

python -m tests.real.bad_worker WHAT FOLDER
"""

import sys

SAYINGS = {
    "long": '{"group":1,"failed":"' + "x" * 200_000 + '"}',
    "no-json": "a fold that prints",
    "no-hash": '{"group":3,"number":17}',
    "huge": '{"group":1,"number":99999999999999999999999,"hash":"' + "0" * 64 + '"}',
    "sound": '{"group":1,"number":5,"rows":1,"size":2,"hash":"' + "ab" * 32 + '","fold":"table"}',
}

if __name__ == "__main__":
    print(SAYINGS[sys.argv[1]], flush=True)
    sys.stdin.read()
