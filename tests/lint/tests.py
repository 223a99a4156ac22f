"""Tests of the lints themselves: python3 -m unittest discover -s tests/lint -p tests.py"""

import importlib.machinery
import importlib.util
import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import source


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, f"{HERE}/{name}")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Words(unittest.TestCase):
    def found(self, line):
        words = script("words")
        return [phrase for _number, _line, phrase, _reason in words.findings(line, words.banned())]

    def test_finds_words_in_prose_and_identifiers(self):
        self.assertEqual(self.found("What stands: `fault_stands`, `StandsFor`, TOLD_AT."), ["stands"] * 3 + ["told"])

    def test_finds_phrases(self):
        self.assertEqual(self.found("it has a task of its own, and goes_on; `go`, on"), ["of its own", "goes on"])

    def test_leaves_other_words_with_the_same_letters_alone(self):
        self.assertEqual(self.found("understand standard standalone lookup still soldier"), [])

    def test_leaves_allowed_phrases_alone(self):
        self.assertEqual(self.found("look up the name"), [])


class Comments(unittest.TestCase):
    def fragments(self, text):
        comments = script("comments")
        return [line for line, comment in comments.blocks(text) if comments.is_fragment(comment)]

    def test_finds_fragments_of_every_kind(self):
        self.assertEqual(self.fragments("//! Module.\n/// Why.\nfn a() {}\nlet b = 1; // Which one\n"), [1, 2, 4])

    def test_joins_the_lines_of_one_comment(self):
        self.assertEqual(self.fragments("/// Counts\n/// all of the faults.\nfn a() {}\n"), [])

    def test_leaves_strings_and_separators_alone(self):
        self.assertEqual(self.fragments('let a = "// no"; let b = \'"\'; let c = r#"// "no" "#;\n// ----\n'), [])


class Lines(unittest.TestCase):
    def test_takes_out_comments_and_test_items(self):
        code, modules = source.without_tests(
            "// one\nfn a() {} // two\n#[cfg(test)]\nmod tests {\n  fn b() { }\n}\n#[cfg(test)]\nmod c;\nfn d() {}\n"
        )
        self.assertEqual([line.strip() for line in code.split("\n") if line.strip()], ["fn a() {}", "fn d() {}"])
        self.assertEqual(modules, ["c"])


if __name__ == "__main__":
    unittest.main()
