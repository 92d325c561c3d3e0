"""Reports of a run: one HTML page, Markdown for a pull request, JUnit for a CI server.

Records -> figures -> text in pure steps: everything shown is computed from the run folder, its
verdict and its baseline.
"""

from evalsuite.report.write import FORMATS, Written, write_reports

__all__ = ["FORMATS", "Written", "write_reports"]
