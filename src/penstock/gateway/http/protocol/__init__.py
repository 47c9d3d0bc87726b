"""HTTP/1.1: bytes to requests, requests to routes, responses to bytes.

request_parser    bytes to requests, with bounds on everything that a client can make grow
conversation      one connection: requests answered in order
browsers          rejects requests of other sites' web pages, and DNS rebinding
routing           decodes the target, finds the route, validates parameters and body
parameters        names of topics, numbers of partitions, points in time
settings_json     configs as JSON
negotiation       `Accept`, `Range` and conditions
messages          requests, responses and routes
errors            errors as status codes and JSON
openapi           the OpenAPI document
"""
