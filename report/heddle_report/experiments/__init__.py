# SPDX-License-Identifier: BSD-2-Clause
"""The experiments, a file a paper. Each exports EXPERIMENTS."""
