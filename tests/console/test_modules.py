"""Signals, elements, addresses, formats and calls of the API, in the browser that runs them."""

import re

from playwright.sync_api import Page, expect
from tests.console.browsing import PageErrors, assert_accessible, open_console
from tests.console.modules import Modules
from tests.processes import Process

# -- signals -----------------------------------------------------------------------------------------------------


def test_effects_run_once_for_a_batch_and_not_for_equal_values(modules: Modules) -> None:
    assert modules.run(
        """
        const { signal, computed, effect, batch, scope } = await lib("signal");
        const seen = [];
        const a = signal(1), b = signal(1);
        const sum = computed(() => a.value + b.value);
        const isEven = computed(() => sum.value % 2 === 0);
        const [, end] = scope(() => effect(() => seen.push([sum.value, isEven.value])));
        batch(() => { a.set(2); b.set(2); });
        batch(() => { a.set(3); b.set(1); });      // the sum stays 4
        a.set(4);
        end();
        a.set(9);
        return seen;
        """
    ) == [[2, True], [4, True], [5, False]]


def test_an_effect_follows_what_it_read_last(modules: Modules) -> None:
    assert modules.run(
        """
        const { signal, effect } = await lib("signal");
        const seen = [], which = signal("a"), a = signal(1), b = signal(2);
        effect(() => seen.push(which.value === "a" ? a.value : b.value));
        b.set(20);
        which.set("b");
        a.set(10);
        b.set(30);
        return seen;
        """
    ) == [1, 20, 30]


def test_what_is_made_inside_a_scope_ends_with_it(modules: Modules) -> None:
    assert modules.run(
        """
        const { signal, effect, scope, onDispose } = await lib("signal");
        const seen = [], a = signal(0);
        const [, end] = scope(() => {
          effect(() => {
            const now = a.value;
            onDispose(() => seen.push(`end ${now}`));
            effect(() => seen.push(`inner ${a.value}`));
          });
        });
        a.set(1);
        end();
        a.set(2);
        return seen;
        """
    ) == ["inner 0", "end 0", "inner 1", "end 1"]


def test_an_effect_that_changes_what_it_reads_is_stopped(modules: Modules) -> None:
    assert "without end" in modules.run(
        """
        const { signal, effect } = await lib("signal");
        const a = signal(0);
        effect(() => a.value);
        try { effect(() => a.set(a.value + 1)); a.set(-5); } catch (error) { return error.message; }
        return "it went on";
        """
    )


# -- elements ----------------------------------------------------------------------------------------------------


def test_text_is_never_markup(modules: Modules) -> None:
    hostile = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    found = modules.run(
        """
        const { h, mount } = await lib("dom");
        mount(main, h("p", { title: argument, data: { value: argument } }, argument, [argument]));
        return [main.querySelectorAll("img, script").length, main.firstChild.textContent, document.title];
        """,
        hostile,
    )
    assert found == [0, hostile * 2, "Modules"]


def test_reactive_children_and_properties_follow_their_signals(modules: Modules) -> None:
    assert modules.run(
        """
        const { h, mount } = await lib("dom");
        const { signal } = await lib("signal");
        const names = signal(["a", "b"]), busy = signal(false);
        const list = h("ul", { class: () => busy.value && "busy", aria: { busy: () => String(busy.value) } },
          "first", () => names.value.map((name) => h("li", null, name)), () => (busy.value ? "…" : null), "last");
        mount(main, list);
        const seen = [list.outerHTML];
        names.set([]);
        busy.set(true);
        seen.push(list.outerHTML);
        names.set(["c"]);
        busy.set(false);
        seen.push(list.textContent);
        return seen;
        """
    ) == [
        '<ul aria-busy="false">first<li>a</li><li>b</li>last</ul>',
        '<ul aria-busy="true" class="busy">first…last</ul>',
        "firstclast",
    ]


# -- numbers and times -------------------------------------------------------------------------------------------


def test_formats(modules: Modules) -> None:
    cases = {
        "count(1234567)": "1,234,567",
        "count(null)": "–",
        "compact(999)": "999",
        "compact(1234)": "1,234",
        "compact(12345)": "12.3 k",
        "compact(1_200_000)": "1.2 M",
        "compact(0.123)": "0.12",
        "compact(999_999)": "1 M",
        "bytes(0)": "0 B",
        "bytes(1023)": "1,023 B",
        "bytes(1024)": "1 KB",
        "bytes(3.4 * 1024 * 1024)": "3.4 MB",
        "bytes(undefined)": "–",
        'rate(1500, "bytes")': "1.5 KB/s",
        "rate(12.25)": "12.3/s",
        "duration(0)": "0 s",
        "duration(0.5)": "0.5 ms",
        "duration(250)": "250 ms",
        "duration(1500)": "1.5 s",
        "duration(184_000)": "3 min 4 s",
        "duration(3_600_000)": "1 h",
        "duration(90_061_000)": "1 d 1 h",
        "duration(-184_000)": "−3 min 4 s",
        "ago(1000, 1200)": "now",
        "ago(0, 61_000)": "1 min ago",
        "ago(-1)": "–",
        "time(Date.UTC(2026, 10, 18, 14, 3, 22, 123))": "2026-11-18 14:03:22.123",
        "time(8.7e15)": "–",
        "utc(0)": "1970-01-01T00:00:00.000Z",
        "percent(0.1234)": "12%",
        "percent(0.0123)": "1.2%",
        "percent(1)": "100%",
    }
    found = modules.run(
        """
        const format = await lib("format");
        const { count, compact, bytes, rate, duration, ago, time, utc, percent } = format;
        const zone = new Date(Date.UTC(2026, 10, 18)).getTimezoneOffset();
        if (zone) throw new Error("the tests' browser is not in UTC");
        return [
        """
        + ",".join(cases)
        + "];"
    )
    assert dict(zip(cases, found, strict=True)) == cases


# -- calls of the API --------------------------------------------------------------------------------------------


def test_an_error_of_the_api_is_a_sentence_with_its_status_and_code(modules: Modules) -> None:
    assert modules.run(
        """
        const { api } = await lib("api");
        try { await api.get("/topics/none"); } catch (error) { return [error.status, error.code, error.message]; }
        """
    ) == [404, "unknown_topic_or_partition", "No such topic: 'none'."]


def test_a_poll_asks_anew_when_what_it_read_changes_and_ends_with_its_scope(modules: Modules) -> None:
    assert modules.run(
        """
        const { poll } = await lib("api");
        const { signal, scope, effect } = await lib("signal");
        const wanted = signal("a"), asked = [];
        let found;
        const [, end] = scope(() => {
          const ask = async () => { const now = wanted.value; asked.push(now); await null; return now.toUpperCase(); };
          found = poll(ask, 60);
        });
        const settled = async (value) => { while (found.value.value !== value) await frame(); };
        await settled("A");
        wanted.set("b");
        await settled("B");
        end();
        wanted.set("c");
        await frame();
        return asked;
        """
    ) == ["a", "b"]


def test_a_poll_keeps_its_value_when_a_call_fails(modules: Modules) -> None:
    assert modules.run(
        """
        const { poll } = await lib("api");
        let calls = 0;
        const found = poll(async () => { if (calls++) throw new Error("no more"); return 5; }, 60);
        while (found.value.loading) await frame();
        found.refresh();
        while (!found.value.error) await frame();
        return [found.value.value, found.value.error.message];
        """
    ) == [5, "no more"]


def test_lines_come_one_by_one(modules: Modules) -> None:
    page = modules.page
    page.route("**/lines", lambda route: route.fulfill(body='{"n":1}\n\n{"n":2}\n{"n":3}'))
    assert modules.run(
        """
        const { api } = await lib("api");
        const seen = [];
        await api.lines("/lines", null, (each) => seen.push(each.n));
        return seen;
        """
    ) == [1, 2, 3]


def test_events_resume_after_the_last_and_stop_at_the_end(modules: Modules) -> None:
    page = modules.page
    asked: list[str | None] = []

    def serve(route: object) -> None:
        asked.append(route.request.headers.get("last-event-id"))  # type: ignore[attr-defined]
        body = (
            'retry: 10\nid: 1\ndata: {"n":1}\n\n'
            if len(asked) == 1
            else 'id: 2\ndata: {"n":2}\n\nevent: end\ndata: {}\n\n'
        )
        route.fulfill(content_type="text/event-stream", body=body)  # type: ignore[attr-defined]

    page.route("**/stream", serve)
    assert modules.run(
        """
        const { api } = await lib("api");
        const seen = [];
        await new Promise((resolve) => api.events("/stream", null, {
          onEvent: ({ event, data, id }) => {
            seen.push([event, data.n ?? null, id]);
            if (event === "end") resolve();
          },
        }));
        return seen;
        """
    ) == [["message", 1, "1"], ["message", 2, "2"], ["end", None, "2"]]
    assert asked == [None, "1"]


# -- addresses ---------------------------------------------------------------------------------------------------


def test_back_and_forward_lead_through_pages(page: Page, node: Process, errors: PageErrors) -> None:
    open_console(page, node.http_url)
    page.get_by_role("link", name="Topics", exact=True).first.click()
    expect(page).to_have_url(re.compile("/console/topics$"))
    page.go_back()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.go_forward()
    expect(page).to_have_url(re.compile("/console/topics$"))
    errors.expect("topics.js")


def test_a_page_is_not_made_anew_for_its_query_nor_for_parameters_that_it_keeps(modules: Modules) -> None:
    assert modules.run(
        """
        const { route, start, navigate, setQuery, location, path } = await lib("router");
        const { h } = await lib("dom");
        const { effect } = await lib("signal");
        const seen = [];
        route("/t/:topic/:tab?", async () => ({
          title: (params) => params.topic,
          keeps: ["tab"],
          page: ({ params, query }) => {
            seen.push(`made ${params.topic}`);
            effect(() => seen.push(`query ${query.value.offset ?? "none"}`));
            effect(() => seen.push(`tab ${location.value.params.tab ?? "none"}`));
            return h("h2", null, params.topic);
          },
        }));
        history.replaceState(null, "", "/console" + path("t", "a/b?"));
        start(main, null, (error) => h("p", null, error.message));
        const until = async (title) => { while (document.title !== title) await frame(); };
        await until("a/b? · Penstock");
        setQuery({ offset: 5, empty: "" });
        navigate(path("t", "a/b?", "x"));
        navigate("/t/c");
        await until("c · Penstock");
        navigate("/elsewhere");
        while (!main.textContent.includes("no such page")) await frame();
        return [seen, window.location.pathname];
        """
    ) == [
        [
            *("made a/b?", "query none", "tab none"),
            *("query 5", "tab none"),
            *("query none", "tab x"),
            *("made c", "query none", "tab none"),
        ],
        "/console/elsewhere",
    ]


# -- forms and dialogs -------------------------------------------------------------------------------------------


def test_a_dialog_keeps_what_was_typed_when_its_action_fails(modules: Modules) -> None:
    page = modules.page
    modules.run(
        """
        const { dialog } = await lib("dialog");
        const { field, textInput } = await lib("form");
        const { h } = await lib("dom");
        const opener = h("button", { type: "button" }, "Open");
        main.append(opener);
        opener.focus();
        let tries = 0;
        const run = async () => { if (!tries++) throw new Error("The name is taken."); };
        dialog({
          title: "New topic",
          body: field("Name", textInput(), { hint: "Letters and digits" }),
          actions: [
            { label: "Cancel", kind: "plain" },
            { label: "Create", kind: "primary", run },
          ],
        });
        """
    )
    name = page.get_by_label("Name")
    expect(name).to_be_focused()
    name.fill("orders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The name is taken.")
    expect(name).to_have_value("orders")
    assert_accessible(page)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Open")).to_be_focused()


def test_destruction_asks_for_the_name(modules: Modules) -> None:
    page = modules.page
    modules.run(
        """
        const { confirmByName } = await lib("dialog");
        window.deleted = 0;
        const action = () => { window.deleted += 1; };
        confirmByName({ title: "Delete the topic?", name: "orders", text: "All records go.", action });
        """
    )
    delete = page.get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    page.get_by_role("textbox").fill("order")
    page.keyboard.press("Enter")
    expect(delete).to_be_disabled()
    page.get_by_role("textbox").fill("orders")
    expect(delete).to_be_enabled()
    assert_accessible(page)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("window.deleted") == 1


def test_escape_closes_a_dialog(modules: Modules) -> None:
    page = modules.page
    modules.run("""const { dialog } = await lib("dialog"); dialog({ title: "About", body: "Text" });""")
    expect(page.get_by_role("dialog", name="About")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
