"""A comparison as a script, to be started, killed and started again: python script.py '{"data": …}'."""

import json
import sys

from recurra.compare import compare

if __name__ == "__main__":
    print(json.dumps(compare(**json.loads(sys.argv[1])).to_json()))
