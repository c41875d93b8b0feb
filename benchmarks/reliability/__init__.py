"""Programs behind the page on reliability, each with a short form that the tests run.

``python -m benchmarks.reliability.NAME --help`` says how to run the long form of one.
"""
