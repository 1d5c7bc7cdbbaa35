"""tools/faults.py: counts by area, and the table between the markers of the page."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

SPEC = importlib.util.spec_from_file_location("faults_tool", Path("tools/faults.py"))
faults = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(faults)

REPORT = """<testsuite>
<testcase name="a"><properties><property name="area" value="Files"/><property name="cases" value="50"/></properties></testcase>
<testcase name="b"><properties><property name="area" value="Files"/></properties><failure/></testcase>
<testcase name="c"><properties><property name="area" value="Files"/></properties><skipped/></testcase>
<testcase name="d"><properties><property name="area" value="Crashes"/></properties></testcase>
<testcase name="e"><error/></testcase>
</testsuite>"""


def test_cases_are_counted_by_area():
    counts = faults.count_areas(ElementTree.fromstring(REPORT).iter("testcase"))
    assert [tuple(one) for one in counts] == [("?", 1, 0, 1, 0), ("Crashes", 1, 1, 0, 0), ("Files", 51, 50, 1, 1)]
    assert faults.table_of(counts).splitlines()[-1] == "| all | 53 | 51 | 2 | 1 |"


def test_the_table_replaces_the_one_before_it():
    page = f"above\n{faults.BEGIN}\nold\n{faults.END}\nbelow\n"
    once = faults.with_table(page, "| new |")
    assert "old" not in once and once.startswith("above\n") and once.endswith("\nbelow\n") and "| new |" in once
    assert faults.with_table(once, "| new |") == once
    with pytest.raises(ValueError, match="lacks the lines"):
        faults.with_table("no markers", "| new |")


def test_the_page_has_the_markers():
    page = faults.PAGE.read_text()
    assert page.count(faults.BEGIN) == page.count(faults.END) == 1
