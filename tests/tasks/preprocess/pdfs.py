"""PDF files made on the spot, whole and broken."""

import io
from collections.abc import Sequence

import pikepdf

FONT = b"<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
PIXEL = b"q 612 0 0 792 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x00 EI Q"  # a page that is a picture


def pdf(
    pages: Sequence[Sequence[str]],
    drawn: bytes = b"",
    trailer: bytes = b"",
    fields: Sequence[bytes] = (),
) -> bytes:
    """A file with these lines on each page, on those without any what is `drawn`, and the form `fields` on all."""
    numbers = b" ".join(b"%d 0 R" % (3 + place) for place in range(len(fields)))
    form = b"/AcroForm << /Fields [%s] >>" % numbers if fields else b""
    widget = b"<< /Type /Annot /Subtype /Widget /Rect [50 50 200 70] %s >>"
    objects = [b"<< /Type /Catalog /Pages 2 0 R %s >>" % form, b"", *(widget % field for field in fields)]
    kids = []
    for lines in pages:
        shown = b" ".join(b"(%s) Tj T*" % line.encode("latin-1") for line in lines)
        content = b"BT /F1 12 Tf 50 700 Td 14 TL %s ET" % shown if lines else drawn
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources %s%s >>"
        objects.append(page % (len(objects), FONT, b" /Annots [%s]" % numbers if fields else b""))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    content, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(b"%010d 00000 n \n" % len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, text)
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, b"".join(places))
    end = b"trailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n"
    return content + table + end % (len(objects) + 1, trailer, len(content))


def encrypted(pages: Sequence[Sequence[str]], password: str) -> bytes:
    """A file that `password` opens."""
    file = io.BytesIO()
    with pikepdf.open(io.BytesIO(pdf(pages))) as document:
        streams = pikepdf.ObjectStreamMode.disable
        document.save(file, encryption=pikepdf.Encryption(user=password, owner=password), object_stream_mode=streams)
    return file.getvalue()


WHOLE = pdf([["Hello world,", "second line"], [], ["Third page"]])
LOCKED = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -1 >> /ID [<00><00>]" % (b"00" * 32, b"11" * 32)

# What is wrong with a file -> the file, and what its reason says.
BROKEN = {
    "empty": (b"", r"the file is empty \(0 bytes\)"),
    "text": (b"Dear reader, this is no PDF", "27 bytes that begin with b'Dear reader, thi'"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(90), r"98 bytes that begin with b'\\x89PNG"),
    "page-of-the-web": (b"<!DOCTYPE html><title>404</title>", "33 bytes that begin with b'<!DOCTYPE html><'"),
    "header-only": (WHOLE[:9], "its last part is missing after 9 bytes"),
    "truncated": (WHOLE[: len(WHOLE) // 2], "its last part is missing"),
    "locked": (pdf([["Secret"]], trailer=LOCKED), "encrypted and needs a password"),
    "scanned": (pdf([[], []], drawn=PIXEL), r"with text, found none on its 2 pages\. If they are scanned"),
    "no-pages": (pdf([]), "in which PDFium finds no page"),
    "lost-page": (WHOLE.replace(b"6 0 R 8 0 R", b"9 9 R 8 0 R"), "found an unreadable page 2 of 3"),
    "pages-of-themselves": (WHOLE.replace(b"/Kids [4 0 R", b"/Kids [2 0 R"), "found an unreadable page 3 of 3"),
    "wiped": (WHOLE[:60] + bytes(len(WHOLE) - 180) + WHOLE[-120:], "in which PDFium finds no page"),
}
