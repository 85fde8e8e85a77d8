# SPDX-License-Identifier: MIT
"""How accurate the op is, beside other ways to attend with few bits: `python -m integration_tests.reports.accuracy`."""
