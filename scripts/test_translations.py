"""Tests that `translations.py` finds each kind of difference, by changing the pages that the project has."""

import pathlib
import unittest

import translations


def changed(page, old, new):
    """What `differences` says once `old` is `new` in `page`."""

    def read(name):
        text = pathlib.Path(name).read_text()
        if name == page:
            assert old in text, f"{page} has no {old!r}: change this test"
            return text.replace(old, new, 1)
        return text

    return "\n".join(translations.differences(read))


class AChangeInEnglishIsFound(unittest.TestCase):
    def check(self, page, old, new, *expected):
        found = changed(page, old, new)
        for text in expected:
            self.assertIn(text, found)

    def test_a_new_heading(self):
        pages = "docs/zh/cookbook.md does not follow docs/cookbook.md"
        self.check("docs/cookbook.md", "## API tiers", "## Something new\n\n## API tiers", pages, "under `## Something new` and `## API")

    def test_a_heading_at_the_end(self):
        last = "## SluicegateMostlyRefuses"
        text = pathlib.Path("docs/runbook.md").read_text()
        end = text[text.index(last) :]
        self.check("docs/runbook.md", end, f"{end}\n## SluicegateNew\n", "`## SluicegateNew` where Chinese has `# (no heading)`")

    def test_an_alert_with_another_name(self):
        old, new = "## SluicegateErrors", "## SluicegateFailures"
        self.check("docs/runbook.md", old, new, "`## SluicegateFailures` where Chinese has `## SluicegateErrors`")

    def test_a_line_of_a_code_block(self):
        self.check("docs/cookbook.md", "rate: 60/min", "rate: 61/min", "Chinese: ", "61/min", "60/min")

    def test_the_default_of_a_parameter(self):
        self.check("docs/policies.md", "| 10 | Counters", "| 12 | Counters", "English: `buckets`", "| 12 |")

    def test_the_range_of_a_parameter(self):
        old = "`buckets` | whole number, 1 to 1,000"
        self.check("docs/policies.md", old, old.replace("1,000", "2,000"), "English: `buckets`", "2,000")

    def test_a_range_that_lost_its_end(self):
        self.check("docs/policies.md", "| list of 1 to 40: text", "| list: text", "English: `method`")

    def test_a_new_parameter(self):
        old = "| `ttl` | duration"
        self.check("docs/policies.md", old, f"| `grace` | duration | 1s | A pause. |\n{old}", "English: `grace`")

    def test_a_default_in_words(self):
        self.check("docs/policies.md", "| every method |", "| `GET` |", "English: `method`")

    def test_a_link(self):
        old = "[exactness](exactness.md)"
        self.check("docs/runbook.md", old, "exactness", "docs/runbook.md", "Chinese has a link to docs/exactness.md, English has none")

    def test_a_link_to_another_heading_of_a_page_in_both_languages(self):
        old, new = "runbook.md#what-happens-when-redis-dies", "runbook.md#sluicegateerrors"
        self.check("docs/deploy.md", old, new, "no link to docs/zh/runbook.md, heading ")

    def test_a_setting_in_prose(self):
        old, new = "`fsGroup`", "`runAsGroup`"
        self.check("docs/deploy.md", old, new, "`runAsGroup` is missing in Chinese")

    def test_a_number_in_prose(self):
        self.check("docs/runbook.md", "for 30 seconds: decisions", "for 45 seconds: decisions", "the number 45 is missing in Chinese")

    def test_the_chinese_term_of_the_glossary(self):
        self.check("docs/glossary.md", "| burst | 突发 |", "| burst | 爆发 |", "爆发", "docs/zh/glossary.md")

    def test_a_command_of_the_readme_that_the_quick_start_shows(self):
        old = "$ sluicegate policies check examples/policies.yaml"
        self.check("README.md", old, old + " --quiet", "README.zh-CN.md does not follow", "docs/zh/quickstart.md: no English page")


class WhatIsFreeStaysFree(unittest.TestCase):
    def test_a_comment_may_be_in_the_language_of_the_page(self):
        self.assertEqual(changed("docs/cookbook.md", "# Free: 60 a minute.", "# Free."), "")

    def test_prose_may_change_its_words(self):
        self.assertEqual(changed("docs/cookbook.md", "Twelve limits that many services need", "Limits for services"), "")


class OneWord(unittest.TestCase):
    def test_another_word_than_that_of_the_console(self):
        self.assertIn("docs/zh/deploy.md: not ", changed("docs/zh/deploy.md", "判定", "决策"))

    def test_another_word_in_the_console(self):
        self.assertIn("console/src/lib/i18n/zh.json: not ", changed("console/src/lib/i18n/zh.json", "判定", "决策"))


if __name__ == "__main__":
    unittest.main()
