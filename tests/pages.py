"""Pages of HTML as tests look at them."""

from html.parser import HTMLParser

VOID = {"br", "hr", "img", "input", "meta"}


class Page(HTMLParser):
    """The text of a page, its tags, and whether every tag is closed where it has to be."""

    def __init__(self, page):
        super().__init__()
        self.text, self.tags, self.open, self.balanced = "", [], [], True
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag):
        self.balanced &= bool(self.open) and self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    @property
    def well_formed(self):
        return self.balanced and not self.open
