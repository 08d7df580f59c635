"""All text that a viewer shows of a page is read: that of annotations and form fields too."""

import io
from collections.abc import Callable

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String

from overnight.tasks.preprocess.steps.pdf_text import PdfText
from tests.contracts.steps.adapter import made, made_of_files, on_files, reasons

HIDDEN, PRINTED, NO_VIEW = 2, 4, 32
BUTTON, RADIO, COMBO, MANY, LINES, PASSWORD = 1 << 16, 1 << 15, 1 << 17, 1 << 21, 1 << 12, 1 << 13
FONTS = Dictionary(
    {
        f"/{name}": Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name(f"/{name}"))
        for name in ("Helvetica", "ZapfDingbats")
    }
)
OPTIONS = [["de", "Germany"], ["fr", "France"], ["it", "Italy"]]


def shown(text: str, font: str = "Helvetica") -> Callable[[pikepdf.Pdf], pikepdf.Object]:
    """How an annotation is drawn."""

    def drawn(document: pikepdf.Pdf) -> pikepdf.Object:
        stream = document.make_stream(f"BT /{font} 12 Tf 2 4 Td ({text}) Tj ET".encode())
        stream.Type, stream.Subtype, stream.BBox = Name.XObject, Name.Form, Array([0, 0, 200, 20])
        stream.Resources = Dictionary(Font=FONTS)
        return stream

    return drawn


def page(
    *,
    drawn: str = "",
    is_field: bool = True,
    stamp: str = "",
    xfa: bool = False,
    font: str = "Helvetica",
    **settings: object,
) -> bytes:
    """A PDF file with a page that shows `Body`, and an annotation."""
    document = pikepdf.new()
    body = document.add_blank_page(page_size=(612, 792))
    body.Contents = document.make_stream(b"BT /Helvetica 12 Tf 50 700 Td (Body) Tj ET")
    body.Resources = Dictionary(Font=FONTS)
    kind = Dictionary(Type=Name.Annot, Rect=Array([50, 500, 250, 520]), F=PRINTED)
    annotation = document.make_indirect(kind)
    for name, value in settings.items():
        annotation[f"/{name}"] = value
    if drawn:
        state = annotation.get("/AS")
        look = shown(drawn, font)(document)
        annotation.AP = Dictionary(N=look if state is None else Dictionary(Yes=look, Off=shown("", font)(document)))
    body.Annots = Array([annotation])
    if stamp:
        look = Dictionary(N=shown(stamp)(document))
        body.Annots.append(Dictionary(Type=Name.Annot, Subtype=Name.Stamp, Rect=annotation.Rect, F=PRINTED, AP=look))
    if annotation.Subtype == Name.Widget and is_field:
        document.Root.AcroForm = Dictionary(Fields=Array([annotation]), DA=String("/Helvetica 12 Tf"))
    if xfa:
        document.Root.NeedsRendering = True
        document.Root.AcroForm = Dictionary(Fields=Array([]), XFA=document.make_stream(b"<xdp/>"))
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


WIDGET = {"Subtype": Name.Widget, "T": String("field")}
BOX = {**WIDGET, "FT": Name.Btn}
CHOICE = {**WIDGET, "FT": Name.Ch, "Opt": Array([Array(list(map(String, option))) for option in OPTIONS])}
PAGES = {
    "a text box": (page(Subtype=Name.FreeText, Contents=String("Free"), drawn="Free words"), ["Body", "Free words"]),
    "a text box that is not drawn": (page(Subtype=Name.FreeText, Contents=String("Free")), ["Body", "Free"]),
    "a stamp": (page(Subtype=Name.Stamp, Contents=String("note"), drawn="APPROVED"), ["Body", "APPROVED"]),
    "a signature": (page(**WIDGET, FT=Name.Sig, drawn="Signed by Ana"), ["Body", "Signed by Ana"]),
    "a button": (page(**BOX, Ff=BUTTON, drawn="Send"), ["Body", "Send"]),
    "a ticked box": (page(**BOX, V=Name.Yes, AS=Name.Yes, drawn="4", font="ZapfDingbats"), ["Body", "✔"]),
    "a box that is not ticked": (page(**BOX, V=Name.Off, AS=Name.Off, drawn="4", font="ZapfDingbats"), ["Body"]),
    "a chosen circle": (page(**BOX, Ff=RADIO, V=Name.Yes, AS=Name.Yes, drawn="l", font="ZapfDingbats"), ["Body", "●"]),
    "a text field": (page(**WIDGET, FT=Name.Tx, V=String("Ana"), drawn="Ana"), ["Body", "Ana"]),
    "a text field beside a stamp": (
        page(**WIDGET, FT=Name.Tx, V=String("Ana"), drawn="Ana", stamp="PAID"), ["Body", "PAID", "Ana"],
    ),
    "a text field that is not drawn": (page(**WIDGET, FT=Name.Tx, V=String("Ana")), ["Body", "Ana"]),
    "lines": (page(**WIDGET, FT=Name.Tx, Ff=LINES, V=String("one\rtwo")), ["Body", "one", "two"]),
    "a password": (page(**WIDGET, FT=Name.Tx, Ff=PASSWORD, V=String("secret"), drawn="secret"), ["Body"]),
    "a field of no form": (page(**WIDGET, FT=Name.Tx, V=String("Ana"), drawn="Ana", is_field=False), ["Body", "Ana"]),
    "a choice": (page(**CHOICE, Ff=COMBO, V=String("de")), ["Body", "Germany"]),
    "two choices": (page(**CHOICE, Ff=MANY, V=Array([String("de"), String("it")])), ["Body", "Germany", "Italy"]),
    "a choice of one's own": (page(**CHOICE, Ff=COMBO | 1 << 18, V=String("Peru")), ["Body", "Peru"]),
    "a hidden box": (page(Subtype=Name.FreeText, Contents=String("x"), F=HIDDEN, drawn="x"), ["Body"]),
    "a box that is only printed": (page(Subtype=Name.FreeText, Contents=String("x"), F=NO_VIEW, drawn="x"), ["Body"]),
    "a hidden field": (page(**WIDGET, FT=Name.Tx, V=String("x"), F=HIDDEN, drawn="x"), ["Body"]),
    "a comment": (page(Subtype=Name.Text, Contents=String("in a window of its own")), ["Body"]),
    "a link": (page(Subtype=Name.Link, A=Dictionary(S=Name.URI, URI=String("http://a.b"))), ["Body"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_the_text_of_a_page_is_that_which_a_viewer_shows(name: str) -> None:
    content, lines = PAGES[name]
    assert [row["text"].splitlines() for row in made_of_files(PdfText(), content, content)] == [lines, lines]


def test_a_form_that_only_other_programs_show_is_quarantined_instead_of_its_notice() -> None:
    block = on_files(PdfText(), page(Subtype=Name.Text, xfa=True), PAGES["a stamp"][0])
    assert "dynamic XFA" in reasons(block)["file0"]
    assert len(made(block)) == 1
