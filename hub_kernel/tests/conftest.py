# SPDX-License-Identifier: MIT
def pytest_configure(config):
    config.addinivalue_line("markers", "kernels_ci: the quick subset that the Hub's CI runs")
