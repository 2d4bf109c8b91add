"""The block editor of poolgrad: pages of pooling operators, built, run and looked into in the browser or a notebook."""
