"""The data sets: found where others keep them, or substitutes, made once into the cache folder."""
