"""The documentation site. `make docs` builds it into build/docs, with each warning as an error."""

from pathlib import Path

from overnight.cli.reference.pages import written_pages

DOCS = Path(__file__).parent
for name, text in written_pages().items():
    file = (DOCS / name).with_suffix(".md")
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists() or file.read_text(encoding="utf-8") != text:  # Sphinx skips a page that stays as it is
        file.write_text(text, encoding="utf-8")

project = "Overnight"
html_title = "Overnight"
copyright = "The Overnight authors, Apache-2.0"
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_llms_txt"]
nitpicky = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3  # as GitHub makes them, so that a link works on both

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = True  # sphinx_llms_txt reads the sources from the built site
html_show_sphinx = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = False
smartquotes = False  # quotes and dashes in a text may be those of SQL or of an option
highlight_language = "text"  # a block without a language is a shell's output

llms_txt_uri_template = "_sources/{docname}.md.txt"  # relative: the site may be in a folder of its host
llms_txt_title = "Overnight"
llms_txt_summary = "Offline batch inference on Prefect and Ray Data: exact resume, row quarantine, atomic publish."
