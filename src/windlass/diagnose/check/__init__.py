"""`check`: will this manifest run, said before it is submitted.

`cli` hands over files and, where there is one, the evidence of a cluster; rules look at one manifest each and report
findings with the line they are about.
"""
