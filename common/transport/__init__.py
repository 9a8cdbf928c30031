"""The network between the parties: messages, channels, codec, gRPC and certificates.

Only this package imports grpc.
"""
