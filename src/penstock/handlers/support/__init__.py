"""What handlers share: dispatch, contexts, sessions, fast paths and response fields. The APIs are one level up."""
