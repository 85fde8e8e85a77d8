# SPDX-License-Identifier: MIT
"""What maintainers and contributors are sent: patch series, pull request texts and the comparison of the options.

`python -m integration_tests.reports.upstream [--aiter PATH] [--diffusers PATH]` writes dist/upstream/.
docs/upstreaming.md explains how to read it and how to send it.
"""
