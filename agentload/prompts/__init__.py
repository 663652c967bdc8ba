"""Turn segments into messages of an exact length."""
