"""Turn a decision into a document, and the document into Markdown, HTML and JSON."""
