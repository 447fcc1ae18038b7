"""The server under the application: sockets, HTTP/1.1 with clocks on slow clients, keys. It knows bytes, headers and
time; no route, no model and no JSON but that of a refusal.
"""
