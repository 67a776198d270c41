"""Who is calling, what applies to them, and what they may use. Knows the pipeline's rules (`inference`), nothing of HTTP."""
