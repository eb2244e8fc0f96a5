"""Nouns that cross planes: frozen, closed models and the ports. No behaviour lives here.

Every plane imports this package and nothing beside it, so what two planes both know stands here.
"""
