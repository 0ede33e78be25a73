"""Chat gateways: any agent that Backstay serves answers on a chat platform, and the same session is open elsewhere."""
