"""JSON over HTTP.

messages      requests, responses and errors, as routes see them
routing       which function answers what; parameters and bodies are checked before it is called
conversation  HTTP/1.1 on a wire
openapi       the description of all routes, at /openapi.json, and the page at /docs
"""
