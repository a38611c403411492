#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""torch_table.py ALONE UNDER -- the rows of torch_times.py without and with
pinion, side by side. Fails if bytes differ."""

import json
import sys


def rows(path):
    with open(path, encoding="utf-8") as file:
        found = [json.loads(line) for line in file if line.startswith("{")]
    return {(r["what"], r["bytes"], r.get("each"), r.get("pause_ms")): r
            for r in found if "what" in r}


def main():
    alone, under = rows(sys.argv[1]), rows(sys.argv[2])
    print("%-36s %8s %8s %10s %10s %6s" % (
        "", "MiB", "each", "alone ms", "pinion ms", "ratio"))
    for key, a in alone.items():
        u = under.get(key)
        each = "%d" % (a["each"] >> 20) if "each" in a else ""
        print("%-36s %8d %8s %10.2f %10s %6s %s" % (
            a["what"], a["bytes"] >> 20, each, a["ms"],
            "%.2f" % u["ms"] if u else "-",
            "%.2f" % (a["ms"] / u["ms"]) if u else "-",
            "" if u and u["equal"] and a["equal"] else "BYTES DIFFER"))
    good = alone and set(alone) == set(under) and all(
        r["equal"] for r in [*alone.values(), *under.values()])
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
