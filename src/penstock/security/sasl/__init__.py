"""Log-ins with SASL, without input or output.

login     the order of requests of one log-in          plain        user name and password
jaas      Kafka's `sasl.jaas.config` strings           scram        SCRAM-SHA-256 and -512
exchange  what a mechanism makes of a client's token   oauthbearer  a bearer token
client    the client's side of all mechanisms
"""
