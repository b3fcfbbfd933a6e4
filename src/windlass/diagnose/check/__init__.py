"""`check`: rules that say whether a manifest will run, before it is submitted.

`cli.check` reads files and, if asked, the evidence of a cluster. Each rule looks at one manifest and reports findings
with a field path, from which the line is looked up.
"""
