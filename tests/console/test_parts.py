"""The table, the chart, the JSON tree and the bytes: large content, the keyboard, accessibility."""

import re

from playwright.sync_api import expect
from tests.console.browsing import assert_accessible
from tests.console.modules import Modules

ROWS = 100_000


_TABLE = """
    const { table } = await lib("table");
    const { signal } = await lib("signal");
    const row = (_, n) => ({ id: `row-${n}`, n, size: (n * 7919) % 100003, none: n % 3 ? n : null });
    window.rows = signal(Array.from({ length: argument }, row));
    window.filter = signal("");
    window.chosen = signal(new Set());
    window.opened = [];
    const { h } = await lib("dom");
    main.append(table({
      label: "Rows",
      columns: [
        { key: "id", title: "Name", value: (row) => row.id, cell: (row) => h("a", { href: "#" + row.id }, row.id) },
        { key: "n", title: "Number", value: (row) => row.n, align: "right", width: 120 },
        { key: "size", title: "Size", value: (row) => row.size, align: "right", width: 120 },
        { key: "none", title: "Maybe", value: (row) => row.none, align: "right", width: 120 },
      ],
      rows: window.rows, key: (row) => row.id, filter: window.filter, selectable: window.chosen,
      onOpen: (row) => window.opened.push(row.id), empty: "Nothing matches.", height: "400px",
    }));
    await frame();
"""


def test_a_long_table_has_few_elements(modules: Modules) -> None:
    page = modules.page
    modules.run(_TABLE, ROWS)
    rows = page.locator("tbody tr:not(.spacer)")
    assert rows.count() < 60
    scroll = page.locator(".table-scroll")
    scroll.evaluate("each => { each.scrollTop = each.scrollHeight }")
    expect(page.get_by_role("link", name=f"row-{ROWS - 1}")).to_be_in_viewport()
    assert rows.count() < 60
    scroll.evaluate("each => { each.scrollTop = each.scrollHeight / 2 }")
    expect(page.get_by_role("link", name=f"row-{ROWS // 2}", exact=True)).to_be_in_viewport()
    assert rows.count() < 60
    assert page.get_by_role("grid").get_attribute("aria-rowcount") == str(ROWS + 1)


def test_more_rows_than_a_browser_has_pixels_for(modules: Modules) -> None:
    page = modules.page
    count = 1_500_000
    modules.run(_TABLE, count)
    scroll = page.locator(".table-scroll")
    scroll.evaluate("each => { each.scrollTop = each.scrollHeight }")
    expect(page.get_by_role("link", name=f"row-{count - 1}")).to_be_in_viewport()
    page.locator("tbody tr:not(.spacer)").last.focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("link", name="row-0", exact=True)).to_be_in_viewport()
    for _ in range(3):
        page.keyboard.press("PageDown")
    assert page.evaluate("Number(document.activeElement.getAttribute('aria-rowindex'))") > 20


def test_a_table_sorts_and_filters(modules: Modules) -> None:
    page = modules.page
    modules.run(_TABLE, 1000)
    first = page.locator("tbody tr:not(.spacer) a").first
    expect(first).to_have_text("row-0")
    page.get_by_role("button", name="Size").click()
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute("aria-sort", "descending")
    largest = max(range(1000), key=lambda n: n * 7919 % 100003)
    expect(first).to_have_text(f"row-{largest}")
    page.get_by_role("button", name="Size").click()
    expect(first).to_have_text("row-0")
    page.get_by_role("button", name="Maybe").click()
    expect(first).to_have_text("row-998")  # what is not known comes last
    page.get_by_role("button", name="Name").click()
    expect(first).to_have_text("row-0")
    page.evaluate("window.filter.set('ROW-99 9')")
    expect(page.locator("tbody tr:not(.spacer)")).to_have_count(11)
    page.evaluate("window.filter.set('no such row')")
    expect(page.get_by_text("Nothing matches.")).to_be_visible()
    assert_accessible(page)


def test_a_table_is_used_with_the_keyboard(modules: Modules) -> None:
    page = modules.page
    modules.run(_TABLE, 1000)
    page.locator("tbody tr").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("window.opened") == ["row-1", "row-999"]
    assert page.evaluate("[...window.chosen.value]") == ["row-1"]
    page.keyboard.press("Home")
    expect(page.get_by_role("checkbox", name="Select row-1", exact=True)).to_be_checked()
    page.get_by_role("checkbox", name="Select all").click()
    assert page.evaluate("window.chosen.value.size") == 1000


def test_new_rows_keep_the_focus_and_the_place(modules: Modules) -> None:
    page = modules.page
    modules.run(_TABLE, 1000)
    page.locator(".table-scroll").evaluate("each => { each.scrollTop = 33 * 500 }")
    link = page.get_by_role("link", name="row-505", exact=True)
    link.focus()
    page.evaluate("window.rows.update((now) => now.map((row) => ({ ...row, size: row.size + 1 })))")
    expect(link).to_be_focused()
    expect(link).to_be_in_viewport()
    page.evaluate("window.rows.update((now) => [{ id: 'new', n: -1, size: 0 }, ...now])")
    expect(link).to_be_focused()


def test_cells_show_no_markup_and_cut_what_is_long(modules: Modules) -> None:
    page = modules.page
    hostile = "<b>bold</b>\u202ereversed\u001b[31m" + "x" * 5000
    modules.run(
        """
        const { table } = await lib("table");
        const columns = [{ key: "a", title: "A", value: (row) => row.a }];
        main.append(table({ label: "Hostile", columns, rows: [{ a: argument }], key: () => "1" }));
        await frame();
        """,
        hostile,
    )
    cell = page.locator("tbody td")
    assert cell.text_content() == hostile
    assert page.locator("tbody b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert cell.bounding_box()["height"] < 40  # type: ignore[index]


# -- the chart ---------------------------------------------------------------------------------------------------


def test_a_chart_reads_out_values_by_pointer_and_keyboard(modules: Modules) -> None:
    page = modules.page
    modules.run(
        """
        const { chart } = await lib("chart");
        const { signal } = await lib("signal");
        const { count } = await lib("format");
        const at = (n) => Date.UTC(2026, 0, 1) + n * 5000;
        window.series = signal([
          { name: "in", points: Array.from({ length: 720 }, (_, n) => [at(n), n > 300 && n < 400 ? null : n]) },
          { name: "out", points: Array.from({ length: 720 }, (_, n) => [at(n), 2 * n]) },
        ]);
        main.append(chart({ title: "Bytes", series: window.series, format: count, stacked: true }));
        await frame();
        """
    )
    legend = page.locator(".chart-legend")
    expect(legend).to_have_text("in719out1,438")
    chart = page.get_by_role("img", name="Bytes")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    expect(legend).to_have_text(re.compile(r"^in–out[67]\d\d$"))
    expect(page.locator(".chart-time")).to_have_text(re.compile(r"^00:(29|30):\d5|^00:(29|30):\d0"))
    page.mouse.move(0, 0)
    chart.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(legend).to_have_text("in718out1,436")
    page.keyboard.press("Escape")
    expect(legend).to_have_text("in719out1,438")
    page.get_by_role("button", name="out").click()
    expect(page.get_by_role("button", name="out")).to_have_attribute("aria-pressed", "false")
    assert_accessible(page)
    pixels = "each.getContext('2d').getImageData(0, 0, each.width, each.height).data"
    assert chart.evaluate(f"each => {pixels}.some((n) => n)")
    page.evaluate("window.series.set([])")
    expect(page.get_by_text("No data yet")).to_be_visible()


# -- JSON and bytes ----------------------------------------------------------------------------------------------


def test_ten_megabytes_of_json_do_not_freeze_the_page(modules: Modules) -> None:
    """The page goes on drawing: no pause between two frames is long, and few elements are made."""
    page = modules.page
    longest_ms, elements = modules.run(
        """
        const { jsonTree } = await lib("json-tree");
        const item = (_, n) => ({ id: n, text: "x".repeat(60), more: { a: [n] } });
        const value = { list: Array.from({ length: 100_000 }, item), text: "y".repeat(3_000_000) };
        const wide = Object.fromEntries(Array.from({ length: 50_000 }, (_, n) => [`key-${n}`, n]));
        let last = performance.now(), longest = 0, isOver = false;
        const watch = () => {
          const now = performance.now();
          longest = Math.max(longest, now - last);
          last = now;
          if (!isOver) requestAnimationFrame(watch);
        };
        requestAnimationFrame(watch);
        await frame();
        last = performance.now();
        longest = 0;
        main.append(jsonTree({ value, wide }, { open: 3 }));
        await frame();
        await frame();
        isOver = true;
        return [longest, main.querySelectorAll("*").length];
        """
    )
    assert elements < 6000
    assert longest_ms < 1000
    page.get_by_role("button", name="Show 100 more of 99,900").click()
    expect(page.get_by_text("199", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Show 20,000 more of 2,999,500 characters").click()
    expect(page.get_by_role("button", name="Show 20,000 more of 2,979,500 characters")).to_be_visible()


def test_a_json_tree_opens_level_by_level_and_shows_no_markup(modules: Modules) -> None:
    page = modules.page
    modules.run(
        """
        const { jsonTree } = await lib("json-tree");
        main.append(jsonTree(argument));
        """,
        {"<b>key</b>": "<script>1</script>", "deep": {"deeper": {"deepest": [True, None, 1.5]}}, "empty": {}},
    )
    tree = page.locator(".json-tree")
    expect(tree).to_contain_text('<b>key</b>: "<script>1</script>"')
    assert tree.locator("b, script").count() == 0
    expect(page.get_by_text("deepest", exact=True)).to_have_count(0)
    page.locator("summary", has_text="deep:").click()
    page.locator("summary").filter(has_text="deeper:").click()
    page.locator("summary").filter(has_text="deepest:").press("Enter")
    expect(tree).to_contain_text("null")
    assert_accessible(page)


def test_bytes_are_shown_line_by_line(modules: Modules) -> None:
    page = modules.page
    modules.run(
        """
        const { hexView } = await lib("hex");
        main.append(hexView(new Uint8Array(1_000_000).map((_, n) => n)));
        await frame();
        """
    )
    view = page.get_by_role("region", name="1000000 bytes in hexadecimal")
    text = view.text_content() or ""
    assert text.startswith("00000000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f")
    assert "00000020  20 21 22 23 24 25 26 27  28 29 2a 2b 2c 2d 2e 2f   !\"#$%&'()*+,-./" in text
    assert len(text) < 10_000
    view.evaluate("each => { each.scrollTop = each.scrollHeight }")
    expect(view).to_contain_text("000f4230")
    assert_accessible(page)
