"""Evaluates every expression of Ceph's Grafana boards at a Prometheus, with the boards' own variables, and prints what is empty.

There is no Grafana: what it would substitute is substituted here, by the values that a board's queries for its variables find.

PROMETHEUS   where it is, such as http://127.0.0.1:9090
BOARDS       folder of the boards, *.json
PREFER       NAME=VALUE,...: which value a variable is to have where there are several and one is chosen
EXCEPTIONS   file: `BOARD | PANEL | LETTER | why`, with * for any, of expressions that are empty, or may be: `at times: why`

Prints a line for each empty expression, and a last one with the score. Ends with 1 when one is empty that is no exception, or an exception is none.
"""
import fnmatch
import glob
import json
import os
import re
import sys
import urllib.parse
import urllib.request

PROMETHEUS, BOARDS = os.environ["PROMETHEUS"], os.environ["BOARDS"]
PREFER = dict(pair.split("=", 1) for pair in os.environ.get("PREFER", "").split(",") if pair)
INTERVALS = {"__rate_interval": "20s", "__interval": "5s", "interval": "20s", "__range": "60s"}


def get(path, **arguments):
    url = f"{PROMETHEUS}/api/v1/{path}?{urllib.parse.urlencode(arguments, doseq=True)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise ValueError(json.load(error).get("error")) from error


def label_values(query):
    """`label_values(SERIES, LABEL)` or `label_values(LABEL)`, as Grafana asks for it."""
    inner = re.fullmatch(r"label_values\((.*)\)", query.strip(), re.S).group(1)
    series, _, label = inner.rpartition(",")
    if not series:
        return sorted(get(f"label/{label.strip()}/values"))
    found = get("series", **{"match[]": series.strip().replace("{}", "")})
    return sorted({labels[label.strip()] for labels in found if label.strip() in labels})


def substitute(text, values):
    names = sorted(values, key=len, reverse=True)
    return re.sub("|".join(rf"\$\{{{name}(?::\w+)?\}}|\${name}\b" for name in names), lambda at: value_of(at, values), text)


def value_of(match, values):
    return values[re.match(r"\$\{?(\w+)", match.group(0)).group(1)]


def escaped(value):
    """For a regular expression in a string of PromQL."""
    return re.escape(value).replace("\\", "\\\\")


def variables(board):
    values = dict(INTERVALS)
    for one in board["templating"]["list"]:
        name = one["name"]
        if one["type"] == "query":
            query = one["query"]["query"] if isinstance(one["query"], dict) else one["query"]
            found = label_values(substitute(query, values))
            pattern = (one.get("regex") or "").strip("/")
            if pattern:
                matches = [re.match(pattern, value) for value in found]
                found = sorted({match.group(1) if match.groups() else match.group(0) for match in matches if match})
            if one.get("includeAll"):
                values[name] = one.get("allValue") or "(" + "|".join(map(escaped, found)) + ")"
            else:
                wanted = PREFER.get(name)
                values[name] = wanted if wanted in found else (found or [""])[0]
        elif one["type"] == "custom":
            values[name] = PREFER.get(name) or one["query"].split(",")[0]
    return values


def panels(board):
    rows = board.get("panels", []) + [panel for row in board.get("rows", []) for panel in row.get("panels", [])]
    for panel in rows:
        yield panel
        yield from panels(panel)


def is_excepted(exceptions, where):
    hits = [rule for rule in exceptions if all(fnmatch.fnmatchcase(part, glob) for part, glob in zip(where, rule[:3]))]
    for rule in hits:
        rule[4] = True
    return bool(hits)


def main():
    exceptions = []
    for line in open(os.environ["EXCEPTIONS"]) if "EXCEPTIONS" in os.environ else []:
        if line.strip() and not line.startswith("#"):
            exceptions.append([part.strip() for part in line.split(" | ")] + [False])
    panels_all = panels_full = targets_all = targets_full = 0
    wrong = []
    for path in sorted(glob.glob(os.path.join(BOARDS, "*.json"))):
        board, name = json.load(open(path)), os.path.basename(path).removesuffix(".json")
        values = variables(board)
        shown = full = 0
        for panel in panels(board):
            targets = [target for target in panel.get("targets") or [] if target.get("expr")]
            has_data = False
            for target in targets:
                expression = substitute(target["expr"].replace("\\\\\\\\", "\\\\"), values)
                found = get("query", query=expression)["result"]
                targets_all += 1
                targets_full += bool(found)
                has_data |= bool(found)
                where = (name, panel.get("title") or "", target.get("refId") or "")
                if not found:
                    excepted = is_excepted(exceptions, where)
                    print("empty" if excepted else "EMPTY", *where, " ".join(expression.split()), sep=" | ")
                    if not excepted:
                        wrong.append(where)
            shown += bool(targets)
            full += has_data
        print(f"{name}: {full} of {shown} panels")
        panels_all, panels_full = panels_all + shown, panels_full + full
    for rule in exceptions:
        if not rule[4] and not rule[3].startswith("at times:"):
            print("no exception any more:", " | ".join(map(str, rule[:4])))
            wrong.append(rule)
    print(f"score: {panels_full} of {panels_all} panels have data, {targets_full} of {targets_all} expressions")
    sys.exit(bool(wrong))


main()
