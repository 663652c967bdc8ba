"""Read a server's /metrics text into one vocabulary; no other room knows the servers' metric names.

`scrape.parse` turns the text of vLLM, SGLang, llama.cpp or TGI, of any version, into a `Scrape`:
values and histograms by our names, summed over engines. Two scrapes can be subtracted, replicas
joined. `likeness` compares the lengths, reuse and load of a trace or a run with a production
server's scrape. Everything here is pure: `telemetry` and `endpoints` fetch the text.
"""
