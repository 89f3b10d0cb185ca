"""Recall on known bugs: does an audit report a bug before its fix, and not after it?"""
