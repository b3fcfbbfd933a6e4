"""The live loop: informers → store → decide → apply."""
