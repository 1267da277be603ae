import json
import sys
from jsonschema import Draft202012Validator

schema, value = json.load(sys.stdin)
Draft202012Validator.check_schema(schema)
for error in Draft202012Validator(schema).iter_errors(value):
    print(error.json_path, repr(error.message))
