# SPDX-License-Identifier: MIT
# ReFrame checks the values of variables by types of its own.
List = list
