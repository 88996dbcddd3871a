"""The data sets, found where others keep them or made once into the cache folder, as substitutes."""
