"""JSON over HTTP: each module serves a part of the API.

produce records tail topics configs groups consuming cluster explorer operations

routes       the table of all routes; /docs and /openapi.json
docs_page    the page at /docs
server       the port: state that all connections share
protocol/    HTTP itself: parsing, routing, validation, errors, the OpenAPI document
"""
