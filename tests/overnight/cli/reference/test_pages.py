"""The pages as a terminal shows them: no directive of the site, and links that are names to type."""

from overnight.cli.reference.pages import all_pages, for_a_terminal, title

NAMES = {"how-to/chat", "how-to/speech", "reference/columns"}


def test_a_link_to_a_page_becomes_its_text_and_the_name_of_the_page() -> None:
    text = "[Columns](../reference/columns.md#models) and [speech](speech.md), [this](chat.md#here)"
    expected = "Columns *(reference/columns)* and speech *(how-to/speech)*, this"
    assert for_a_terminal("how-to/chat", text, NAMES) == expected


def test_a_link_to_a_file_becomes_its_text_and_one_to_an_address_stays() -> None:
    text = "[`a.yaml`](../../deployments/jobs/a.yaml) [site](https://example.org/a.md)"
    assert for_a_terminal("how-to/chat", text, NAMES) == "`a.yaml` [site](https://example.org/a.md)"


def test_code_stays_and_directives_of_the_site_go() -> None:
    code = "```yaml\n[a](chat.md)\n```\n"
    toctree = "```{toctree}\n:hidden:\n\nchat\n```\n"
    included = "```{literalinclude} ../../deployments/systemd/a.service\n:language: ini\n```\n"
    text = for_a_terminal("how-to/speech", f"{code}{toctree}{included}", NAMES)
    assert text == f"{code}See deployments/systemd/a.service in the repository.\n"


def test_every_page_has_a_title_and_no_directive() -> None:
    pages = all_pages(with_api=False)
    assert {"index", "how-to/speech", "reference/job-file/source", "reference/python", "changelog"} <= pages.keys()
    assert [name for name, text in pages.items() if not title(text) or "```{" in text] == []
