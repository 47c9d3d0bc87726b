"""JSON over HTTP.

messages      requests, responses and errors, as routes see them
routing       which function answers what; parameters and bodies are checked before it is called
targets       paths and queries, cut and decoded
negotiation   which form of an answer a client wants
errors        what is wrong, as a status and JSON
forms         what texts may look like
settings      settings as JSON: what each may be
arriving      HTTP/1.1 as it comes in: bytes into requests
bodies        memory for what requests carry, of all clients together
conversation  requests answered in their order, on a wire
door          the port: what its clients share
heads         the first lines of responses
routes        all routes, of all the modules here that are not named
openapi       the description of all routes, at /openapi.json, and the page at /docs
"""
