"""Audits that are disturbed at random moments, by seed, and must end in the bytes of an undisturbed one."""
