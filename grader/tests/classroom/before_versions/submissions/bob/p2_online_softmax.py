# bob p2, handed in
