"""The forward pass of GLM-5.3-Flash's text architecture, one module per kind of sublayer."""
