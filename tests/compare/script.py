"""A comparison as a script, which tests start, kill and resume: python script.py '{"data": …}'."""

import json
import sys

from recurra.compare import compare

if __name__ == "__main__":
    print(json.dumps(compare(**json.loads(sys.argv[1])).to_json()))
