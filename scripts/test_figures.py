"""Tests that `figures.py` finds a figure that nobody measured, and that it records what the benchmark writes."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import figures

RESULTS = {
    "a.json": {"entries": {
        "healthy": {"runs": {"now": "now-healthy"}, "now": {"admitted": 10101, "times_limit": 1.0}},
        "frozen": {"now": {"admitted": 1397, "times_limit": 1.397}},
        "remarks": [{"least": [0.988]}],
    }},
    "table.md": "| Case | Calls |\n|---|--:|\n| N=4 | 1.38 |\n",
}
CHOSEN = {"20": "the deadline in ms"}


def found(body, marker="figures: a.json", before=""):
    text = f"{before}<!-- {marker} -->\n{body}\n<!-- end -->\n"
    return "\n".join(figures.wrong("page.md", text, RESULTS, CHOSEN))


class AFalseFigureIsFound(unittest.TestCase):
    def test_in_a_row(self):
        self.assertIn("page.md:2: 10102 is not in", found("| `healthy` | 10,102 | 1.00 |"))

    def test_of_another_row(self):
        self.assertIn("page.md:2: 1397 is not in", found("| healthy | 1,397 | 1.00 |"))

    def test_in_a_row_in_another_language(self):
        self.assertIn("10101 is not in", found("| 正常 | 10,101 | 1.40 |"))

    def test_in_a_sentence(self):
        self.assertIn("page.md:3: 0.987 is not in", found("At least\n0.987."))

    def test_that_is_rounded_too_far(self):
        self.assertIn("1.39 is not in", found("| frozen | 1,397 | 1.39 |"))

    def test_outside_the_regions(self):
        self.assertIn("page.md:1: 0.4 is in no region of figures", found("", before="It takes 0.4 ms.\n"))

    def test_in_a_table_that_a_command_prints(self):
        self.assertIn("the table is not that of", found("| Case | Calls |\n|---|--:|\n| N=4 | 1.37 |", "figures: table.md"))

    def test_of_a_file_that_is_not_there(self):
        self.assertIn("there is no bench/results/b.json", found("", "figures: b.json"))

    def test_an_entry_that_no_page_shows(self):
        unused = list(figures.unused(["| healthy | 1 |\n"], RESULTS))
        self.assertEqual(unused, ["bench/results/a.json: no table has a row `frozen`"])


class NoFalseAlarm(unittest.TestCase):
    def test_true_figures(self):
        for body in (
            "| scenario | admitted | × limit |\n|---|--:|--:|\n| `healthy` | 10,101 | 1.00 |\n| 冻结 | 1,397 | 1.40 |",
            "At least 0.988, with `--nodes 7` and a deadline of 20 ms.",
            "```sh\nsleep 5\n```",
        ):
            self.assertEqual(found(body), "")
        self.assertEqual(found(RESULTS["table.md"], "figures: table.md, a.json"), "")
        self.assertEqual(found("| frozen for 8 s | 2 |", "chosen: settings", "A deadline of 20 ms.\n"), "")


class Record(unittest.TestCase):
    def test_the_figures_of_a_run(self):
        raw = {
            "beside": 0.0, "admitted": 900, "most_over": -3.4, "bound": 1000.0, "p99_ms": 2.51, "remark": "calls 1.62 % of decisions",
            "modes": [{"mode": "store", "admitted": 890, "refused": 5}, {"mode": "local", "admitted": 10, "refused": 7}],
        }
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            results = figures.RESULTS
            figures.RESULTS = pathlib.Path(folder)
            try:
                (figures.RESULTS / "a.json").write_text(json.dumps(RESULTS["a.json"]))
                pathlib.Path(folder, "now-healthy.json").write_text(json.dumps(raw))
                figures.record("a.json", folder)
                entries = json.loads((figures.RESULTS / "a.json").read_text())["entries"]
            finally:
                figures.RESULTS = results
        self.assertEqual(entries["healthy"]["now"], {"admitted": 900, "times_limit": 0.9})
        self.assertEqual(entries["frozen"], RESULTS["a.json"]["entries"]["frozen"])
        self.assertEqual(figures.measured(raw)["by_share"], 17)
        self.assertEqual(figures.measured(raw)["calls_percent"], 1.62)


if __name__ == "__main__":
    unittest.main()
