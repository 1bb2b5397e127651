"""`dares explore`: a page on this machine that shows how a model reads a text.

`explorer` computes, `app` answers the page's requests, `static/` is the page.
"""
