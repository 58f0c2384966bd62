//! HTTP: connections, routing, verbs, negotiation, response bodies, Status errors, discovery, OpenAPI.
